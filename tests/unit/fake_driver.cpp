// A CUDA driver without a GPU, for the test of the backend: device memory is host memory, and operations run at once, or
// are recorded while a stream captures.
//
// A "cubin" is a text with a line `kernel NAME SIZE...` for each kernel, where SIZE is the size of a parameter. A kernel
// writes what it was launched with to the memory of its first parameter: grid, block, dynamic shared memory, whether
// the launch was cooperative, and the bytes of its other parameters. The time of an event is the number of operations
// before it. Functions that are not here do not exist for cuGetProcAddress.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using Operation = std::function<void()>;

struct CUctx_st {};
struct CUfunc_st {
    std::string name;
    std::vector<size_t> sizes;
    std::map<int, int> attributes;
};
struct CUlib_st {
    std::map<std::string, CUfunc_st> kernels;
};
struct CUgraphNode_st {
    Operation operation;
    std::vector<CUgraphNode> before;
};
struct CUgraph_st {
    std::vector<Operation> operations;  // of a capture
    std::vector<CUgraphNode> nodes;     // of a graph that was built node by node
};
struct CUgraphExec_st {
    std::vector<Operation> operations;
    std::vector<CUgraphNode> nodes;
    std::map<CUgraphNode, Operation> changed;
};
struct CUstream_st {
    CUgraph graph = nullptr;  // of the capture
};
struct CUevent_st {
    long time;
    bool is_timed;
};

static CUctx_st context;
static thread_local CUcontext current = nullptr;
static long ticks = 0;
static CUresult pending = CUDA_SUCCESS;  // the error of a kernel, which the next synchronization reports

static CUresult put(CUstream stream, Operation operation) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    Operation timed = [operation] { ++ticks, operation(); };
    if (stream != nullptr && stream->graph != nullptr)
        stream->graph->operations.push_back(timed);
    else
        timed();
    return CUDA_SUCCESS;
}

static CUresult prepare(CUfunction function, const unsigned sizes[7], unsigned cooperative, void** parameters,
                        Operation* made) {
    std::vector<std::vector<char>> values;
    for (size_t i = 0; i < function->sizes.size(); ++i) {
        const char* from = static_cast<const char*>(parameters[i]);
        values.emplace_back(from, from + function->sizes[i]);
    }
    std::vector<unsigned> launched(sizes, sizes + 7);
    launched.push_back(cooperative);
    int allowed = function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    if (launched[6] > 48u * 1024 && static_cast<int>(launched[6]) > allowed) return CUDA_ERROR_INVALID_VALUE;
    std::string name = function->name;
    *made = [name, values, launched] {
        if (name == "fault") {
            pending = CUDA_ERROR_ILLEGAL_ADDRESS;
            return;
        }
        if (values.empty()) return;
        char* out;
        std::memcpy(&out, values[0].data(), sizeof out);
        std::memcpy(out, launched.data(), launched.size() * sizeof(unsigned));
        out += launched.size() * sizeof(unsigned);
        for (size_t i = 1; i < values.size(); ++i) {
            std::memcpy(out, values[i].data(), values[i].size());
            out += values[i].size();
        }
    };
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, const unsigned sizes[7], unsigned cooperative, CUstream stream,
                       void** parameters) {
    Operation operation;
    CUresult found = prepare(function, sizes, cooperative, parameters, &operation);
    return found == CUDA_SUCCESS ? put(stream, operation) : found;
}

#define DONE        \
    {               \
        return CUDA_SUCCESS; \
    }
#define API extern "C" CUresult CUDAAPI

API cuInit(unsigned) DONE
API cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
API cuGetErrorName(CUresult error, const char** name) {
    *name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == CUDA_ERROR_NOT_FOUND     ? "CUDA_ERROR_NOT_FOUND"
            : error == CUDA_ERROR_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE"
            : error == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                                : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}
API cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

API cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
API cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
API cuDeviceGetName(char* name, int length, CUdevice) { return std::strncpy(name, "Fake", length), CUDA_SUCCESS; }
API cuDeviceTotalMem(size_t* bytes, CUdevice) { return *bytes = 1 << 30, CUDA_SUCCESS; }
API cuDeviceGetPCIBusId(char* id, int length, CUdevice) { return std::strncpy(id, "0:0", length), CUDA_SUCCESS; }
API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT   ? 4
             : attribute == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE          ? 1 << 20
                                                                       : 0;
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRetain(CUcontext* made, CUdevice) { return *made = &context, CUDA_SUCCESS; }
API cuDevicePrimaryCtxRelease(CUdevice) DONE
API cuCtxSetCurrent(CUcontext chosen) { return current = chosen, CUDA_SUCCESS; }
API cuCtxGetCurrent(CUcontext* chosen) { return *chosen = current, CUDA_SUCCESS; }
static thread_local std::vector<CUcontext> below;
API cuCtxPushCurrent(CUcontext chosen) { return below.push_back(current), current = chosen, CUDA_SUCCESS; }
API cuCtxPopCurrent(CUcontext* old) {
    if (below.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *old = current, current = below.back(), below.pop_back();
    return CUDA_SUCCESS;
}
API cuCtxGetDevice(CUdevice* device) {
    return *device = 0, current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, CUDA_SUCCESS; }

API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    return *stream = new CUstream_st, CUDA_SUCCESS;
}
API cuStreamDestroy(CUstream stream) { return delete stream, CUDA_SUCCESS; }
API cuStreamGetCtx(CUstream, CUcontext* chosen) { return *chosen = &context, CUDA_SUCCESS; }
API cuStreamSynchronize(CUstream) {
    CUresult found = pending;
    return pending = CUDA_SUCCESS, found;
}
API cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || stream->graph) return CUDA_ERROR_INVALID_VALUE;
    return stream->graph = new CUgraph_st, CUDA_SUCCESS;
}
API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph* graph,
                           const CUgraphNode**, const CUgraphEdgeData**, size_t*) {
    if (status) *status = stream->graph ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (graph) *graph = stream->graph;
    return CUDA_SUCCESS;
}
static thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) { return std::swap(*mode, capture_mode), CUDA_SUCCESS; }
API cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    if (graph) *graph = stream->graph;
    return stream->graph = nullptr, CUDA_SUCCESS;
}
API cuGraphInstantiateWithParams(CUgraphExec* made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return *made = new CUgraphExec_st{graph->operations, graph->nodes, {}}, CUDA_SUCCESS;
}
API cuGraphCreate(CUgraph* graph, unsigned flags) {
    return *graph = new CUgraph_st, flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
static CUresult add(CUgraphNode* made, CUgraph graph, const CUgraphNode* before, size_t count, Operation operation) {
    *made = new CUgraphNode_st{[operation] { ++ticks, operation(); }, {before, before + count}};
    return graph->nodes.push_back(*made), CUDA_SUCCESS;
}
static CUresult prepare_node(const CUDA_KERNEL_NODE_PARAMS* p, Operation* made) {
    unsigned sizes[] = {p->gridDimX,  p->gridDimY,  p->gridDimZ,      p->blockDimX,
                        p->blockDimY, p->blockDimZ, p->sharedMemBytes};
    return prepare(p->func, sizes, 0, p->kernelParams, made);
}
API cuGraphAddKernelNode(CUgraphNode* made, CUgraph graph, const CUgraphNode* before, size_t count,
                         const CUDA_KERNEL_NODE_PARAMS* params) {
    Operation operation;
    CUresult found = prepare_node(params, &operation);
    return found == CUDA_SUCCESS ? add(made, graph, before, count, operation) : found;
}
API cuGraphAddMemsetNode(CUgraphNode* made, CUgraph graph, const CUgraphNode* before, size_t count,
                         const CUDA_MEMSET_NODE_PARAMS* p, CUcontext chosen) {
    if (chosen == nullptr || p->elementSize != 1 || p->height != 1) return CUDA_ERROR_INVALID_VALUE;
    void* to = reinterpret_cast<void*>(p->dst);
    size_t bytes = p->width;
    int value = static_cast<int>(p->value);
    return add(made, graph, before, count, [=] { std::memset(to, value, bytes); });
}
API cuGraphInstantiate(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
    *made = new CUgraphExec_st{graph->operations, graph->nodes, {}};
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
// The driver ends the process that calls it without a context.
API cuGraphExecKernelNodeSetParams(CUgraphExec graph, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
    if (current == nullptr) std::abort();
    return prepare_node(params, &graph->changed[node]);
}
// Of the nodes that can run, the one that was added last runs first.
static void run_nodes(CUgraphExec graph) {
    std::vector<CUgraphNode> waiting = graph->nodes;
    auto is_waiting = [&](CUgraphNode node) {
        for (CUgraphNode each : waiting)
            if (each == node) return true;
        return false;
    };
    while (!waiting.empty())
        for (size_t i = waiting.size(); i-- > 0;) {
            CUgraphNode node = waiting[i];
            bool ready = true;
            for (CUgraphNode each : node->before) ready = ready && !is_waiting(each);
            if (!ready) continue;
            waiting.erase(waiting.begin() + static_cast<long>(i));
            if (graph->changed.count(node))
                graph->changed[node]();
            else
                node->operation();
            break;
        }
}
// cuda.core attaches objects to a graph. Here they live until the process ends.
API cuUserObjectCreate(CUuserObject* object, void*, CUhostFn, unsigned, unsigned) {
    return *object = nullptr, CUDA_SUCCESS;
}
API cuUserObjectRelease(CUuserObject, unsigned) DONE
API cuGraphRetainUserObject(CUgraph, CUuserObject, unsigned, unsigned) DONE
API cuGraphReleaseUserObject(CUgraph, CUuserObject, unsigned) DONE
API cuGraphLaunch(CUgraphExec graph, CUstream) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    for (Operation& each : graph->operations) each();
    run_nodes(graph);
    return CUDA_SUCCESS;
}
API cuGraphExecDestroy(CUgraphExec graph) { return delete graph, CUDA_SUCCESS; }
API cuGraphDestroy(CUgraph graph) { return delete graph, CUDA_SUCCESS; }

API cuEventCreate(CUevent* event, unsigned flags) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return *event = new CUevent_st{-1, (flags & CU_EVENT_DISABLE_TIMING) == 0}, CUDA_SUCCESS;
}
API cuEventDestroy(CUevent event) { return delete event, CUDA_SUCCESS; }
API cuEventRecord(CUevent event, CUstream) { return event->time = ticks, CUDA_SUCCESS; }
API cuEventSynchronize(CUevent) {
    return capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
API cuEventElapsedTime(float* milliseconds, CUevent first, CUevent second) {
    if (first->time < 0 || second->time < 0 || !first->is_timed || !second->is_timed) return CUDA_ERROR_INVALID_HANDLE;
    return *milliseconds = static_cast<float>(second->time - first->time), CUDA_SUCCESS;
}

API cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                      unsigned) {
    CUlib_st* made = new CUlib_st;
    std::istringstream lines(static_cast<const char*>(code));
    std::string line, word;
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        if (!(words >> word) || word != "kernel") return CUDA_ERROR_INVALID_IMAGE;
        CUfunc_st kernel;
        words >> kernel.name;
        for (size_t size; words >> size;) kernel.sizes.push_back(size);
        made->kernels[kernel.name] = kernel;
    }
    return *library = made, CUDA_SUCCESS;
}
API cuLibraryUnload(CUlibrary library) { return delete library, CUDA_SUCCESS; }
API cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    auto found = library->kernels.find(name);
    if (found == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
    return *kernel = reinterpret_cast<CUkernel>(&found->second), CUDA_SUCCESS;
}
API cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return *function = reinterpret_cast<CUfunction>(kernel), CUDA_SUCCESS;
}
API cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
    CUfunction function = reinterpret_cast<CUfunction>(kernel);
    if (index >= function->sizes.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    return *size = function->sizes[index], CUDA_SUCCESS;
}
API cuFuncLoad(CUfunction) DONE
API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    return function->attributes[attribute] = value, CUDA_SUCCESS;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, size_t) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return *blocks = 2048 / threads, CUDA_SUCCESS;
}

// The allocations that were not freed yet.
extern "C" {
int allocations = 0;
}
API cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    ++allocations;
    *pointer = reinterpret_cast<CUdeviceptr>(std::malloc(bytes));
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API cuMemFree(CUdeviceptr pointer) {
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return --allocations, std::free(reinterpret_cast<void*>(pointer)), CUDA_SUCCESS;
}
API cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return put(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
}
API cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return put(stream, [=] { std::memcpy(to, reinterpret_cast<void*>(from), bytes); });
}
API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return put(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
}
API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    return put(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}

API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream stream, void** parameters, void**) {
    unsigned sizes[] = {gx, gy, gz, bx, by, bz, shared};
    return launch(f, sizes, 0, stream, parameters);
}
API cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, CUstream stream, void** parameters) {
    unsigned sizes[] = {gx, gy, gz, bx, by, bz, shared};
    return launch(f, sizes, 1, stream, parameters);
}
API cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** parameters, void**) {
    unsigned sizes[] = {c->gridDimX,  c->gridDimY,  c->gridDimZ,      c->blockDimX,
                        c->blockDimY, c->blockDimZ, c->sharedMemBytes};
    return c->numAttrs ? CUDA_ERROR_INVALID_VALUE : launch(f, sizes, 0, c->hStream, parameters);
}

extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                                                CUdriverProcAddressQueryResult* status) {
    Dl_info own;
    dladdr(reinterpret_cast<void*>(&cuInit), &own);
    void* library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = nullptr;
    for (const char* suffix : {"_v3", "_v2", ""})
        if (*function == nullptr) *function = dlsym(library, (std::string(symbol) + suffix).c_str());
    if (std::strcmp(symbol, "cuGetProcAddress") == 0) *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
    if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
