"""Models of any density, fitted by noisy gradients."""
