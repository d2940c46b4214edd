"""AttCAT: Qiang et al., Explaining Transformers via Attentive Class Activation Tokens (NeurIPS 2022)."""
