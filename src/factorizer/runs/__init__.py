"""Runs and their folds on disk: the only code that knows the names of their files.

| module | what it does |
|---|---|
| fold | `Fold`: one training, or a model of the zoo |
| run | `Run`: the folds of one cross-validation |
| facts | everything that a run says about itself |
| find | the folds that a user means by a path or `zoo:NAME` |
| records | the starts of a fold in `run.json` |
| rules | the rules of post-processing |
| speeds | faster settings of the NMF layers |
| weights | the weights of a fold as tensors |
| run_scores | the scores of a file, a fold or a run |
| zoo | the models that ship with the package |
"""
