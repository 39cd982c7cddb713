"""Storage of cells: in memory, in a folder, in an object store, in etcd."""
