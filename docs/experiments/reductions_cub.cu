// The reductions of CUB for reductions.py. A call with no temporary storage returns the bytes that it needs.
#include <cub/device/device_reduce.cuh>
#include <cstddef>

template <typename T>
static long run(int operation, void *space, size_t bytes, const void *in, void *out, long n, cudaStream_t stream) {
    const T *source = static_cast<const T *>(in);
    T *result = static_cast<T *>(out);
    cudaError_t status = operation == 0   ? cub::DeviceReduce::Sum(space, bytes, source, result, n, stream)
                         : operation == 1 ? cub::DeviceReduce::Min(space, bytes, source, result, n, stream)
                                          : cub::DeviceReduce::Max(space, bytes, source, result, n, stream);
    return status == cudaSuccess ? static_cast<long>(bytes) : -static_cast<long>(status);
}

extern "C" long cub_reduce(int type, int operation, void *space, size_t bytes, const void *in, void *out, long n,
                           cudaStream_t stream) {
    return type == 0   ? run<float>(operation, space, bytes, in, out, n, stream)
           : type == 1 ? run<int>(operation, space, bytes, in, out, n, stream)
                       : run<unsigned char>(operation, space, bytes, in, out, n, stream);
}
