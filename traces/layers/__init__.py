"""Measures the layers of real PyTorch models. Everything here needs torch; who reads the table does not come here."""
