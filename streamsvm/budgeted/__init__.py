"""The budgeted kernel SVM: SGD on support vectors, which are merged when there are too many."""
