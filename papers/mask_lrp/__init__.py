"""Mask-LRP: Song et al., Better Explain Transformers by Illuminating Important Information (2024)."""
