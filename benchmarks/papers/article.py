"""An article on random Fourier features: its regression."""
