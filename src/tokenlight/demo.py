"""What `make demo` shows: two sentences that disagree, one with a negation, and methods of every school."""

SENTENCES = [
    "A charming and often affecting journey, carried by a luminous lead performance.",
    "The plot is a mess, the jokes fall flat, and the ending is just plain dull.",
    "It isn't a bad film at all, and I never once looked at my watch.",
]
METHODS = [
    "raw_attention",
    "rollout",
    "generic_attention",
    "gradient_x_input",
    "attcat",
    "integrated_gradients",
    "erasure",
]
