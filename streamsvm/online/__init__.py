"""Base classes of the online learners, and the kernels that they share.

The methods of a learner are those of a chain of base classes, one per subject. `RowMethods` (`row_methods`) has methods
for many events, also those of classifiers with refits. `LearnerMemory` (`memory`) has the state and its growth,
`EventLearner` (`events`) single events, and `SavedLearner` (`saving`) archives, copies and schemas. `OnlineClassifier`
(`base`), the base of the algorithms, encodes and runs rows and describes what was learned.

Kernels are in `driver` (entry points), `batch` and `calibration`. Runs and delayed labels use these classifiers, and
any other of River, through `adapters`.
"""
