"""Key agreement, authenticated channels, secret sharing and masks, on top of the package `cryptography`."""
