"""Microbenchmarks of the GPU that is here, and the profile that they make.

`gpu` compiles and launches; `cuda` has the kernels' source; `memory`, `pipes`, `tensor`, `sync`,
`coalescer` and `power` declare the benchmarks; `profile` writes what they found as YAML.
"""
