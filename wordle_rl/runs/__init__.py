"""What any run is made of: settings into objects, run folder, checkpoints, files, signals."""
