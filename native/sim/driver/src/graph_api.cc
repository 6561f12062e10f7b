// SPDX-License-Identifier: Apache-2.0
// The structure of graphs: creation, edges, queries.
#include <algorithm>
#include <cstdio>

#include "api.h"
#include "device.h"
#include "graph.h"
#include "report.h"
#include "thread_state.h"

using namespace tessera::sim;

namespace {

template <class Body>
CUresult graph_api(Body&& body) {
  return api([&] {
    const GraphLock lock(graph_mutex());
    body();
  });
}

// The usual query: a null array asks for the count; a short one is filled, a long one gets nulls.
template <class Handle>
void give_list(const std::vector<Handle>& list, Handle* out, size_t* count) {
  require(count != nullptr);
  if (out == nullptr) {
    *count = list.size();
    return;
  }
  for (size_t i = 0; i < *count; ++i) out[i] = i < list.size() ? list[i] : Handle{};
  *count = std::min(*count, list.size());
}

std::vector<CUgraphNode> handles_of(const std::vector<GraphNode*>& nodes) {
  std::vector<CUgraphNode> handles;
  for (GraphNode* node : nodes) handles.push_back(to_handle<CUgraphNode>(node));
  return handles;
}

bool plain(const CUgraphEdgeData& data) { return data.from_port == 0 && data.to_port == 0 && data.type == 0; }

void give_edge_list(const std::vector<GraphEdge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  std::vector<CUgraphNode> handles;
  std::vector<CUgraphEdgeData> datas;
  for (const GraphEdge& edge : edges) {
    require(data != nullptr || nodes == nullptr || plain(edge.data), CUDA_ERROR_LOSSY_QUERY);
    handles.push_back(to_handle<CUgraphNode>(edge.from));
    datas.push_back(edge.data);
  }
  size_t copy = count != nullptr ? *count : 0;
  if (data != nullptr) give_list(datas, data, &copy);
  give_list(handles, nodes, count);
}

CUresult get_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  return graph_api([&] {
    const Graph& graph = graph_of(handle);
    std::vector<CUgraphNode> starts, ends;
    std::vector<CUgraphEdgeData> datas;
    for (const Ref<GraphNode>& node : graph.nodes) {
      for (const GraphEdge& edge : node->dependencies) {
        require(data != nullptr || from == nullptr || plain(edge.data), CUDA_ERROR_LOSSY_QUERY);
        starts.push_back(to_handle<CUgraphNode>(edge.from));
        ends.push_back(to_handle<CUgraphNode>(node.get()));
        datas.push_back(edge.data);
      }
    }
    require(count != nullptr && (from == nullptr) == (to == nullptr));
    size_t first = *count, second = *count;
    if (data != nullptr) give_list(datas, data, &first);
    if (to != nullptr) give_list(ends, to, &second);
    give_list(starts, from, count);
  });
}

CUresult get_dependencies(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return graph_api([&] { give_edge_list(node_of(handle).dependencies, nodes, data, count); });
}

CUresult get_dependents(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return graph_api([&] {
    const GraphNode& node = node_of(handle);
    std::vector<GraphEdge> edges;
    for (GraphNode* next : node.graph->dependents(node)) {
      for (const GraphEdge& edge : next->dependencies) {
        if (edge.from == &node) edges.push_back({next, edge.data});
      }
    }
    give_edge_list(edges, nodes, data, count);
  });
}

CUresult add_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                          size_t count) {
  return graph_api([&] {
    const Graph& graph = graph_of(handle);
    require(count == 0 || (from != nullptr && to != nullptr));
    for (size_t i = 0; i < count; ++i) {
      GraphNode &start = node_of(from[i]), &end = node_of(to[i]);
      require(start.graph == &graph && end.graph == &graph && &start != &end);
      const bool there = std::any_of(end.dependencies.begin(), end.dependencies.end(),
                                     [&start](const GraphEdge& edge) { return edge.from == &start; });
      require(!there);
      end.dependencies.push_back({&start, data != nullptr ? data[i] : CUgraphEdgeData{}});
    }
  });
}

CUresult remove_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return graph_api([&] {
    const Graph& graph = graph_of(handle);
    require(count == 0 || (from != nullptr && to != nullptr));
    for (size_t i = 0; i < count; ++i) {
      const GraphNode& start = node_of(from[i]);
      GraphNode& end = node_of(to[i]);
      require(start.graph == &graph && end.graph == &graph);
      const size_t removed =
          std::erase_if(end.dependencies, [&start](const GraphEdge& edge) { return edge.from == &start; });
      require(removed > 0);
    }
  });
}

}  // namespace

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return graph_api([&] {
    require(phGraph != nullptr && flags == 0);
    *phGraph = to_handle<CUgraph>(new Graph);
  });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return graph_api([&] {
    Graph& graph = graph_of(hGraph);
    require(!graph.embedded);
    graph.kill(Graph::kTag);
    graph.release();
  });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return graph_api([&] {
    require(phGraphClone != nullptr);
    *phGraphClone = to_handle<CUgraph>(graph_of(originalGraph).clone().detach());
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  return graph_api([&] {
    require(phNode != nullptr);
    const GraphNode& original = node_of(hOriginalNode);
    for (const Ref<GraphNode>& node : graph_of(hClonedGraph).nodes) {
      if (node->original != &original) continue;
      *phNode = to_handle<CUgraphNode>(node.get());
      return;
    }
    fail(CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return graph_api([&] {
    require(type != nullptr);
    *type = node_of(hNode).content.type;
  });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return graph_api([&] {
    std::vector<GraphNode*> all;
    for (const Ref<GraphNode>& node : graph_of(hGraph).nodes) all.push_back(node.get());
    give_list(handles_of(all), nodes, numNodes);
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return graph_api([&] {
    std::vector<GraphNode*> roots;
    for (const Ref<GraphNode>& node : graph_of(hGraph).nodes) {
      if (node->dependencies.empty()) roots.push_back(node.get());
    }
    give_list(handles_of(roots), rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData,
                            size_t* numEdges) {
  return get_edges(hGraph, from, to, edgeData, numEdges);
}
CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return get_edges(hGraph, from, to, nullptr, numEdges);
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return get_dependencies(hNode, nodes, data, count);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* nodes, size_t* count) {
  return get_dependencies(hNode, nodes, nullptr, count);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return get_dependents(hNode, nodes, data, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* nodes, size_t* count) {
  return get_dependents(hNode, nodes, nullptr, count);
}
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t count) {
  return add_dependencies(hGraph, from, to, edgeData, count);
}
CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return add_dependencies(hGraph, from, to, nullptr, count);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData*, size_t count) {
  return remove_dependencies(hGraph, from, to, count);
}
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return remove_dependencies(hGraph, from, to, count);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return graph_api([&] {
    GraphNode& node = node_of(hNode);
    node.graph->remove(node);
  });
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int) {
  return graph_api([&] {
    const Graph& graph = graph_of(hGraph);
    require(path != nullptr);
    std::FILE* file = std::fopen(path, "we");
    require(file != nullptr, CUDA_ERROR_OPERATING_SYSTEM);
    std::fprintf(file, "digraph graph_1 {\n");
    for (const Ref<GraphNode>& node : graph.nodes) {
      std::fprintf(file, "  n%p [label=\"type %d\"];\n", static_cast<void*>(node.get()), node->content.type);
      for (const GraphEdge& edge : node->dependencies) {
        std::fprintf(file, "  n%p -> n%p;\n", static_cast<void*>(edge.from), static_cast<void*>(node.get()));
      }
    }
    std::fprintf(file, "}\n");
    require(std::fclose(file) == 0, CUDA_ERROR_OPERATING_SYSTEM);
  });
}

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags) {
  return graph_api([&] {
    require(object_out != nullptr && destroy != nullptr && initialRefcount > 0);
    require(flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    auto* const object = new UserObject(ptr, destroy);
    for (unsigned i = 1; i < initialRefcount; ++i) object->retain();
    *object_out = to_handle<CUuserObject>(object);
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return graph_api([&] {
    UserObject& kept = from_handle<UserObject>(object, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; ++i) kept.retain();
  });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return graph_api([&] {
    UserObject& kept = from_handle<UserObject>(object, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; ++i) kept.release();
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  return graph_api([&] {
    Graph& keeper = graph_of(graph);
    UserObject& kept = from_handle<UserObject>(object, CUDA_ERROR_INVALID_VALUE);
    require((flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) == 0);
    for (unsigned i = 0; i < count; ++i) {
      const bool move = (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
      keeper.user_objects.push_back(move ? Ref<UserObject>(&kept) : Ref<UserObject>::share(&kept));
    }
  });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return graph_api([&] {
    Graph& keeper = graph_of(graph);
    const UserObject& kept = from_handle<UserObject>(object, CUDA_ERROR_INVALID_VALUE);
    auto& list = keeper.user_objects;
    for (unsigned i = 0; i < count; ++i) {
      const auto found =
          std::find_if(list.begin(), list.end(), [&kept](const Ref<UserObject>& o) { return o.get() == &kept; });
      require(found != list.end());
      list.erase(found);
    }
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return api([&] { device_of(device); });
}

// A graph's memory belongs to its nodes here: there is no cache to report or to trim.
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return api([&] {
    device_of(device);
    require(value != nullptr && attr >= CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT &&
            attr <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    *static_cast<cuuint64_t*>(value) = 0;
  });
}
