"""How good the model is, what more labels would bring, and how that is shown. No torch."""
