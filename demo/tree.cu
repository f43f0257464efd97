// Range queries in a binary search tree of records, with an explicit stack. The address of a node's record is computed
// again in every arm of the walk.
struct Node { long long key; int left; int right; int payload; int visits; };

extern "C" __global__ void range_sum(Node *nodes, const long long *low, const long long *high, long long *sums, int root,
                                     int queries)
{
    const int q = blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= queries)
        return;
    int stack[32];
    int top = 0;
    long long sum = 0;
    stack[top++] = root;
    while (top > 0) {
        const int n = stack[--top];
        if (n < 0)
            continue;
        nodes[n].visits = 1;
        if (nodes[n].key < low[q]) {
            if (top < 32)
                stack[top++] = nodes[n].right;
        } else if (nodes[n].key > high[q]) {
            if (top < 32)
                stack[top++] = nodes[n].left;
        } else {
            sum += nodes[n].payload;
            if (top < 31) {
                stack[top++] = nodes[n].left;
                stack[top++] = nodes[n].right;
            }
        }
    }
    sums[q] = sum;
}
