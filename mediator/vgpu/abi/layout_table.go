package abi

// A Field describes one field of an entry for documentation, traces and tests.
type Field struct {
	Name   string
	Offset int // in the entry
	Size   int // in bytes
}

// HeaderFields is the header of every submission entry.
var HeaderFields = []Field{
	{"op", headerOp, 2}, {"version", headerVersion, 1}, {"flags", headerFlags, 1}, {"more", headerMore, 1},
	{"zero", headerZero, 1}, {"aux", headerAux, 2}, {"cookie", headerCookie, 8},
}

// CompletionFields is a completion entry.
var CompletionFields = []Field{
	{"status", completionStatus, 2}, {"version", completionVersion, 1}, {"zero", completionZero, 1},
	{"op", completionOp, 2}, {"zero2", completionOp + 2, 2}, {"cookie", completionCookie, 8},
	{"seq", completionSeq, 8}, {"start", completionStart, 8}, {"end", completionEnd, 8},
	{"value0", completionValues, 8}, {"value1", completionValues + 8, 8}, {"value2", completionValues + 16, 8},
}

// FormFields is the payload of each form, in the order of its type's fields. Bytes that a form does
// not name are zero.
var FormFields = map[Form][]Field{
	FormEmpty:  nil,
	FormHandle: {{"handle", 16, 8}},
	FormQuery:  {{"handle", 16, 8}, {"value", 24, 8}, {"key", 32, 4}},
	FormLookup: {{"module", 16, 8}, {"name", 24, 8}, {"name_bytes", 32, 4}},
	FormWindow: {{"window_offset", 16, 8}, {"window_bytes", 24, 8}},
	FormAlloc:  {{"size", 16, 8}, {"align", 24, 8}, {"flags", 32, 4}, {"zero", 36, 4}, {"address", 40, 8}},
	FormTransfer: {
		{"dst", 16, 8}, {"src", 24, 8}, {"size", 32, 8},
	},
	FormCopy3D: {
		{"dst", 16, 8}, {"src", 24, 8}, {"dst_pitch", 32, 4}, {"src_pitch", 36, 4}, {"dst_rows", 40, 4},
		{"src_rows", 44, 4}, {"width", 48, 4}, {"height", 52, 4}, {"depth", 56, 4}, {"dst_place", 60, 2}, {"src_place", 62, 2},
	},
	FormSet: {
		{"dst", 16, 8}, {"count", 24, 8}, {"pitch", 32, 8}, {"rows", 40, 8}, {"value", 48, 4}, {"width", 52, 4},
	},
	FormModule: {
		{"image_offset", 16, 8}, {"image_bytes", 24, 8}, {"log", 32, 8}, {"log_bytes", 40, 4}, {"format", 44, 4},
		{"max_registers", 48, 4}, {"flags", 52, 4},
	},
	FormOccupancy: {
		{"function", 16, 8}, {"shared_bytes", 24, 8}, {"block_threads", 32, 4}, {"flags", 36, 4},
	},
	FormLaunch: {
		{"function", 16, 8}, {"grid_x", 24, 4}, {"grid_y", 28, 4}, {"grid_z", 32, 4}, {"block_x", 36, 4},
		{"block_y", 40, 4}, {"block_z", 44, 4}, {"shared_bytes", 48, 4}, {"param_bytes", 52, 4}, {"data", 56, 8},
	},
	FormElapsed: {{"start", 16, 8}, {"end", 24, 8}},
	FormMapping: {{"window_offset", 16, 8}, {"window_bytes", 24, 8}, {"address", 32, 8}},
	FormPoint:   {{"handle", 16, 8}, {"value", 24, 8}},
	FormArray: {
		{"width", 16, 4}, {"height", 20, 4}, {"depth", 24, 4}, {"format", 28, 2}, {"channels", 30, 2}, {"flags", 32, 4},
	},
	FormArrayCopy: {
		{"array", 16, 8}, {"address", 24, 8}, {"pitch", 32, 4}, {"rows", 36, 4}, {"x", 40, 4}, {"y", 44, 4}, {"z", 48, 4},
		{"width", 52, 4}, {"height", 56, 4}, {"depth", 60, 4},
	},
	FormTexture: {
		{"resource", 16, 8}, {"width", 24, 4}, {"height", 28, 4}, {"pitch", 32, 4}, {"format", 36, 2}, {"channels", 38, 2},
		{"address_x", 40, 2}, {"address_y", 42, 2}, {"address_z", 44, 2}, {"filter", 46, 2},
		{"border_0", 48, 4}, {"border_1", 52, 4}, {"border_2", 56, 4}, {"border_3", 60, 4},
	},
	FormBinding: {{"module", 16, 8}, {"name", 24, 8}, {"name_bytes", 32, 4}, {"surface", 36, 4}, {"texture", 40, 8}},
}
