package fatbin

import "fmt"

// Code is the number of a CUresult.
type Code int

// The codes of this package's errors.
const (
	InvalidImage Code = 200 // CUDA_ERROR_INVALID_IMAGE: not a fat binary, or a broken one
	NoBinary     Code = 209 // CUDA_ERROR_NO_BINARY_FOR_GPU: nothing in it fits the GPU
)

// Error is an image that can't be used.
type Error struct {
	Code   Code
	Offset int64 // of the container or entry in the image
	Msg    string
}

// Error returns the offset and what is wrong there.
func (e *Error) Error() string {
	return fmt.Sprintf("fat binary, offset %d: %s", e.Offset, e.Msg)
}

// invalid returns an error with the code [InvalidImage].
func invalid(offset int64, format string, args ...any) error {
	return &Error{Code: InvalidImage, Offset: offset, Msg: fmt.Sprintf(format, args...)}
}
