"""ALTI: Ferrando et al., Measuring the Mixing of Contextual Information in the Transformer (EMNLP 2022)."""
