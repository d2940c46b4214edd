"""The local page: one model, one person, nothing but this machine. `tokenlight serve` starts it."""
