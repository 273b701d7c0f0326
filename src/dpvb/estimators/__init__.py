"""scikit-learn skins over the models: they hold no mathematics."""
