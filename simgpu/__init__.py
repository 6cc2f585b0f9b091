"""simgpu predicts, explains and checks how attention kernels run on GPUs."""
