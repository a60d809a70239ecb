"""One thread per test process: the tensors are small, and the processes of a parallel run must not fight for cores."""

import torch

torch.set_num_threads(1)
