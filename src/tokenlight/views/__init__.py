"""Views of results: in the terminal, as HTML, LaTeX, figures and reports. Pure functions of results."""
