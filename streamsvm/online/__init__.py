"""Base classes of the online learners, and the kernels that they share.

The methods of a learner are those of a chain of base classes, one per module. `RowMethods` (`row_methods`) has methods
for many events. `LearnerMemory` (`memory`) has the state and its growth, `EventLearner` (`events`) single events,
`RowLearner` (`row_learner`) encoding and batches, and `SavedLearner` (`saving`) archives and copies. `OnlineClassifier`
(`base`) is the base of the algorithms. Kernels are in `driver` (entry points), `batch` and `calibration`. Runs and
delayed labels use these classifiers, and any other of River, through `adapters`.
"""
