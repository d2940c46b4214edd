"""Examples for a first try: the packaged model, sentences, and methods of every kind."""

EMBEDDED = "tokenlight/sst2-minilm"  # name of the packaged model
# A positive, a negative and a negated one.
SENTENCES = [
    "A charming, often affecting journey with a luminous lead.",
    "The plot is a mess, the jokes fall flat, the ending is dull.",
    "It isn't a bad film at all, and I never looked at my watch.",
]
DEMO_METHODS = [
    "rollout",
    "attcat",
    "alti",
    "transformer_attribution",
    "attn_lrp",
    "context_lrp",
    "integrated_gradients",
]
SAMPLE = "The old man the boat and , quite unexpectedly , it is not bad at all ."  # for models of any task
