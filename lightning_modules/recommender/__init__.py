"""Sequential recommendation: SASRec and TiSASRec with hyper-connections, their losses, metrics and baselines."""
