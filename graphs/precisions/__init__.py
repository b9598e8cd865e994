"""Sparse precisions: of kernels on graphs, of fields on meshes and on roads."""
