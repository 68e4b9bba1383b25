// Package domain reads and edits the XML of libvirt domains: the virtual GPUs that the metadata
// asks for, the devices on the QEMU command line, and the edits that add and remove both.
//
// It is pure: XML in, decisions and XML out. An edit touches only the bytes that it changes, so a
// domain's comments, quotes and layout stay as they are, and [Undefine] removes exactly what
// [Define] added.
//
//	<metadata>
//	  <vgpud:devices xmlns:vgpud="urn:vgpud:domain:1">
//	    <vgpud:gpu weight="2" cap="0.5"/>
//	  </vgpud:devices>
//	</metadata>
//
// docs/domain-xml.md is the reference of the element.
package domain
