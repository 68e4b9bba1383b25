package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// wanted says what values the types of flags have whose own errors are those of package strconv.
var wanted = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, 0 or more", "float64": "a number",
	"duration": "a time such as 10s or 500ms", "bool": "true or false",
}

// flagError returns the error of a wrong flag as it is shown: which flag, its value, and what would
// be right.
func flagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag, value := invalid.GetFlag(), strconv.Quote(invalid.GetValue())
	if want, ok := wanted[flag.Value.Type()]; ok {
		return fmt.Errorf("--%s %s: want %s", flag.Name, value, want)
	}
	// Flags with a type of their own say what they want, some after the value.
	return fmt.Errorf("--%s %s: %s", flag.Name, value, strings.TrimPrefix(errors.Unwrap(invalid).Error(), value+": "))
}
