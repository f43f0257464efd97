// LU decomposition of one column block without pivoting, in place. The pivot is loaded again behind every store to the
// same matrix.
extern "C" __global__ void eliminate(double *a, int n, int pivot)
{
    const int row = pivot + 1 + blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n)
        return;
    a[row * n + pivot] = a[row * n + pivot] / a[pivot * n + pivot];
    for (int column = pivot + 1; column < n; ++column) {
        if (a[row * n + pivot] != 0.0)
            a[row * n + column] -= a[row * n + pivot] * a[pivot * n + column];
    }
}
