"""Where cells are kept: in memory, in a folder, in an object store, in etcd."""
