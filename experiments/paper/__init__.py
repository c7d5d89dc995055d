"""The paper's tables and figures, one script each; experiments.reproduce runs all."""
