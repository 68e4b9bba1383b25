package domain

// sharing is what a domain's memory lacks to be shared.
type sharing struct{ source, access bool }

// memoryShared reports whether the guest's memory is shared, at least by default.
func (d *document) memoryShared() bool {
	lacks, err := d.memoryLacks()
	return err == nil && !lacks.source && !lacks.access
}

// memoryLacks returns what Define must add to <memoryBacking>. Existing settings stay; an error
// says that with them the memory can't be shared.
//
// QEMU shares memory that lies in a file: a memfd, a file, or huge pages, which libvirt takes from
// their own file system unless the source says otherwise.
func (d *document) memoryLacks() (sharing, error) {
	for _, e := range d.root.children {
		if !e.is("", "cpu") || e.child("numa") == nil {
			continue
		}
		for _, cell := range e.child("numa").children {
			if cell.attr("memAccess") == "private" {
				return sharing{}, d.attrErrorf(cell, "memAccess", `"private": a virtual GPU needs shared memory; make it "shared" or leave it out`)
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
		return sharing{}, d.attrErrorf(source, "type", `%s: such memory can't be shared; make it "memfd" or "file", or leave <source> out`, quote(source.attr("type")))
	}
	switch access := backing.child("access"); {
	case access == nil:
		lacks.access = true
	case access.attr("mode") != "shared":
		return sharing{}, d.attrErrorf(access, "mode", `%s: a virtual GPU needs shared memory; make it "shared", or leave <access> out`, quote(access.attr("mode")))
	}
	return lacks, nil
}
