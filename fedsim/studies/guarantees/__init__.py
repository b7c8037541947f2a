"""What theory alone says: accounting, calibration, black boxes."""
