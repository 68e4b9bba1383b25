package domain

// sharing is what a domain's memory lacks to be shared.
type sharing struct{ source, access bool }

// memoryShared is whether the guest's memory is shared, by default at least.
func (d *document) memoryShared() bool {
	lacks, err := d.memoryLacks()
	return err == nil && !lacks.source && !lacks.access
}

// memoryLacks is what Define must add to <memoryBacking>. What is there stays;
// an error says that it can't be shared as it is.
//
// QEMU shares memory that lies in a file: a memfd, a file, or huge pages, which
// libvirt takes from a file system of theirs unless the source says otherwise.
func (d *document) memoryLacks() (sharing, error) {
	for _, e := range d.root.children {
		if !e.is("", "cpu") || e.child("numa") == nil {
			continue
		}
		for _, cell := range e.child("numa").children {
			if cell.attr("memAccess") == "private" {
				return sharing{}, d.attrErrorf(cell, "memAccess", `"private": a virtual GPU's VMM has shared memory; make it "shared" or leave it out`)
			}
		}
	}
	backing := d.root.child("memoryBacking")
	if backing == nil {
		return sharing{source: true, access: true}, nil
	}
	var lacks sharing
	switch source := backing.child("source"); {
	case source == nil:
		lacks.source = backing.child("hugepages") == nil
	case source.attr("type") == "memfd", source.attr("type") == "file":
	default:
		return sharing{}, d.attrErrorf(source, "type", `%s: such memory can't be shared; make it "memfd" or "file", or leave <source> out`, show(source.attr("type")))
	}
	switch access := backing.child("access"); {
	case access == nil:
		lacks.access = true
	case access.attr("mode") != "shared":
		return sharing{}, d.attrErrorf(access, "mode", `%s: a virtual GPU's VMM has shared memory; make it "shared", or leave <access> out`, show(access.attr("mode")))
	}
	return lacks, nil
}
