"""What several tests share: oracles, small models, data sets on disk, and short trainings."""
