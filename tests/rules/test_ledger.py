import torch

from tokenlight.rules.ledger import MAX_ELEMENTS, Scratch


def test_a_buffer_is_reused_for_matrices_that_are_not_larger():
    scratch = Scratch()
    large = scratch.like(torch.zeros(8, 6), torch.float64)
    small = scratch.like(torch.zeros(3, 5), torch.float64)
    assert large.dtype == small.dtype == torch.float64
    assert small.data_ptr() == large.data_ptr()
    assert scratch.like(torch.zeros(8, 6), torch.float32).data_ptr() != large.data_ptr()
    assert scratch.like(torch.zeros(9, 6), torch.float64).data_ptr() != large.data_ptr()


def test_a_buffer_has_the_shape_and_strides_of_the_matrix():
    scratch = Scratch()
    for matrix in (torch.randn(4, 3), torch.randn(3, 4).T, torch.randn(3, 8)[:, ::2], torch.randn(1, 4).expand(3, 4)):
        buffer = scratch.like(matrix, torch.float64).copy_(matrix)
        assert buffer.shape == matrix.shape
        assert torch.equal(buffer.float(), matrix)
    assert scratch.like(torch.empty(3, 4).T, torch.float32).stride() == (1, 4)


def test_very_large_buffers_are_not_kept():
    scratch = Scratch()
    scratch.like(torch.empty(1, device="meta").expand(2, MAX_ELEMENTS), torch.float32)
    assert not scratch.buffers
