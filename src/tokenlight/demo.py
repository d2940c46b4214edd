"""What `make demo` shows: two sentences that disagree, one with a negation, and methods of every school."""

SENTENCES = [
    "A charming, often affecting journey with a luminous lead.",
    "The plot is a mess, the jokes fall flat, the ending is dull.",
    "It isn't a bad film at all, and I never looked at my watch.",
]
METHODS = ["rollout", "attcat", "alti", "transformer_attribution", "attn_lrp", "calibrated_lrp", "integrated_gradients"]
