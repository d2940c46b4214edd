"""The local page, for one model and one user, without network access. `tokenlight serve` starts it."""
