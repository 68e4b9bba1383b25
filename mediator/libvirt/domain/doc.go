// Package domain reads and edits the XML of libvirt domains: which virtual GPUs
// a domain asks for in its metadata, whether its QEMU command line has them, and
// how both come to be there.
//
// It is pure: XML in, decisions and XML out. An edit touches the bytes that it
// changes and no others, so that a domain's comments, quotes and layout stay as
// they are, and [Undefine] takes out exactly what [Define] put in.
//
//	<metadata>
//	  <vgpud:devices xmlns:vgpud="urn:vgpud:domain:1">
//	    <vgpud:gpu weight="2" cap="0.5"/>
//	  </vgpud:devices>
//	</metadata>
//
// docs/domain-xml.md is the reference of the element.
package domain
