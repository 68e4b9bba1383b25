package nova

import (
	"strings"

	"github.com/google/uuid"

	"vgpud/mediator/api"
)

// namespace is the namespace of the UUIDs of GPUs' providers, as RFC 9562 §5.5 has them.
var namespace = uuid.MustParse("6f0f8a52-1c39-5d0b-9b0e-2b7d1d6c9a41")

// separator stands between the host's name and the GPU's in a provider's name.
const separator = "_vgpud_"

// maxName is the longest name that Placement takes, in characters.
const maxName = 200

// ProviderUUID returns the UUID of the provider of a GPU under the compute node's provider.
func ProviderUUID(node, gpu string) string {
	return uuid.NewSHA1(namespace, []byte(node+"/"+gpu)).String()
}

// ProviderName returns the name of a GPU's provider. Placement's names are unique, so long is for a
// GPU whose plain name another provider has: it ends with digits of the UUID.
func ProviderName(h Host, gpu string, long bool) string {
	name := separator + gpu
	if long {
		name += "_" + ProviderUUID(h.Node, gpu)[:8]
	}
	host := h.Name
	if len(host)+len(name) > maxName {
		host = host[:max(maxName-len(name), 0)]
	}
	return host + name
}

// OwnGPU returns the GPU that a provider stands for, if this package made it: its name ends with a
// GPU's name, and its UUID follows from that and its parent.
func OwnGPU(p Provider) (gpu string, ok bool) {
	if p.Parent == "" {
		return "", false
	}
	for rest := p.Name; ; {
		_, after, found := strings.Cut(rest, separator)
		if !found {
			return "", false
		}
		// A GPU's name may itself contain the separator, so each place is tried.
		short := after
		if i := strings.LastIndexByte(after, '_'); i >= 0 {
			short = after[:i]
		}
		for _, gpu := range []string{after, short} {
			if api.CheckName(gpu) == nil && ProviderUUID(p.Parent, gpu) == p.UUID {
				return gpu, true
			}
		}
		rest = after
	}
}
