package main

import (
	"regexp"
	"strings"

	"vgpud/cmd/libcuda/api"
)

// class is how a parameter of a C type is passed to the Go part.
type class int

const (
	word      class = iota // an integer, enumeration or handle
	pointer                // an address
	float                  // a float
	structure              // by value: its address is passed
)

// types knows the types of the API.
type types struct {
	handles  map[string]bool
	enums    map[string]bool
	scalars  map[string]string // Go's type
	callback map[string]bool
}

var (
	handleType   = regexp.MustCompile(`^typedef struct \w+ \*(\w+)$`)
	scalarType   = regexp.MustCompile(`^typedef ([\w ]+?) (\w+)$`)
	callbackType = regexp.MustCompile(`^typedef .*\(CUDA_CB \*(\w+)\)`)
)

// cScalars are C's types.
var cScalars = map[string]string{
	"int": "int32", "unsigned int": "uint32", "unsigned": "uint32", "short": "int16", "unsigned short": "uint16",
	"char": "byte", "unsigned char": "byte", "float": "float32", "size_t": "uint64",
	"long long": "int64", "unsigned long long": "uint64", "unsigned long": "uint64",
	"uint32_t": "uint32", "uint64_t": "uint64",
}

// structs are the structures that package cuda mirrors.
var structs = map[string]string{
	"CUDA_MEMCPY2D": "Memcpy2D", "CUDA_MEMCPY3D": "Memcpy3D", "CUDA_MEMCPY3D_PEER": "Memcpy3DPeer",
	"CUlaunchConfig": "LaunchConfig", "CUctxCreateParams": "CtxCreateParams", "CUlaunchAttribute": "LaunchAttribute", "CUlaunchAttributeValue": "LaunchAttributeValue", "CUkernelNodeAttrValue": "LaunchAttributeValue", "CUstreamAttrValue": "LaunchAttributeValue", "CUdevprop": "DeviceProperties", "CUuuid": "UUID",
	"CUDA_KERNEL_NODE_PARAMS": "KernelNodeParams", "CUDA_KERNEL_NODE_PARAMS_v1": "KernelNodeParamsV1", "CUDA_MEMSET_NODE_PARAMS": "MemsetNodeParams",
	"CUDA_HOST_NODE_PARAMS": "HostNodeParams", "CUDA_MEM_ALLOC_NODE_PARAMS": "MemAllocNodeParams", "CUgraphNodeParams": "NodeParams", "CUDA_GRAPH_INSTANTIATE_PARAMS": "InstantiateParams",
	"CUgraphExecUpdateResultInfo": "UpdateInfo", "CUDA_ARRAY_DESCRIPTOR": "ArrayDescriptor", "CUDA_ARRAY3D_DESCRIPTOR": "Array3DDescriptor", "CUDA_ARRAY_MEMORY_REQUIREMENTS": "ArrayRequirements",
	"CUDA_RESOURCE_DESC": "ResourceDesc", "CUDA_TEXTURE_DESC": "TextureDesc", "CUDA_RESOURCE_VIEW_DESC": "ResourceViewDesc", "CUmemAllocationProp": "MemAllocationProp", "CUmemLocation": "MemLocation", "CUmemPoolProps": "MemPoolProps", "CUmemAccessDesc": "MemAccess",
	"CUmemcpyAttributes": "MemcpyAttributes", "CUDA_MEMCPY3D_BATCH_OP": "BatchOp3D",
}

func newTypes(a *api.API) *types {
	t := &types{map[string]bool{}, map[string]bool{}, map[string]string{}, map[string]bool{}}
	for c, g := range cScalars {
		t.scalars[c] = g
	}
	for _, e := range a.Enums {
		t.enums[e.Name] = true
		t.scalars[e.Name] = "uint32"
	}
	for _, line := range a.Types {
		if m := handleType.FindStringSubmatch(line); m != nil {
			t.handles[m[1]] = true
			t.scalars[m[1]] = "Handle"
		} else if m := callbackType.FindStringSubmatch(line); m != nil {
			t.callback[m[1]] = true
		} else if m := scalarType.FindStringSubmatch(line); m != nil && t.scalars[m[1]] != "" {
			t.scalars[m[2]] = t.scalars[m[1]]
		}
	}
	return t
}

// class returns how a parameter is passed.
func (t *types) class(c string) class {
	switch {
	case strings.HasSuffix(c, "*") || t.callback[c] || strings.Contains(c, "("):
		return pointer
	case t.scalars[c] == "float32":
		return float
	case t.scalars[c] != "":
		return word
	}
	return structure
}

// goType returns the Go type of a parameter.
func (t *types) goType(c string) string {
	switch t.class(c) {
	case word, float:
		return t.scalars[c]
	case structure:
		return t.pointerTo(c)
	}
	to := strings.TrimSpace(strings.TrimSuffix(c, "*"))
	return t.pointerTo(strings.TrimSpace(strings.TrimPrefix(to, "const ")))
}

func (t *types) pointerTo(c string) string {
	switch {
	case strings.HasSuffix(c, "*") || strings.HasSuffix(c, "*const"):
		return "*Pointer"
	case t.scalars[c] != "":
		return "*" + t.scalars[c]
	case structs[c] != "":
		return "*" + structs[c]
	}
	return "Pointer"
}
