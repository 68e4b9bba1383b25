package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"vgpud/internal/nearest"
)

// decode reads a request's body, in which unknown fields are errors.
func decode[T any](r *http.Request) (T, error) {
	var v T
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("request body: %w: %w", bodyError(err, reflect.TypeFor[T]()), ErrInvalid)
	}
	if _, err := d.Token(); err != io.EOF {
		return v, fmt.Errorf("request body: more data follows after its end; nothing was done: %w", ErrInvalid)
	}
	return v, nil
}

// bodyError says for readers who know the API and not Go what is wrong with a body of a type.
func bodyError(err error, t reflect.Type) error {
	if name, ok := unknownField(err); ok {
		known := fieldNames(t)
		if near, ok := nearest.Name(name, known); ok {
			return fmt.Errorf("%.48q: unknown field; do you mean %s?", name, near)
		}
		return fmt.Errorf("%.48q: unknown field; known are %s", name, strings.Join(known, ", "))
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		found, want := foundValue(wrong.Value), wantedValue(wrong.Type)
		if wrong.Field == "" {
			return fmt.Errorf("%s, want %s", found, want)
		}
		return fmt.Errorf("%s: %s, want %s", wrong.Field, found, want)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("no JSON at byte %d: %w", syntax.Offset, err)
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("more than %d bytes", large.Limit)
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("empty, want a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends within the JSON object")
	}
	return err
}

// unknownField returns the name in package json's error about a field that is not known, which has
// no type.
func unknownField(err error) (name string, ok bool) {
	quoted, ok := strings.CutPrefix(err.Error(), "json: unknown field ")
	if !ok {
		return "", false
	}
	name, uerr := strconv.Unquote(quoted)
	return name, uerr == nil
}

// fieldNames returns the names of a struct's fields in JSON, and those of the structs in it.
func fieldNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			names = append(names, fieldNames(inner)...)
		}
	}
	return names
}

// foundValue describes a JSON value, which package json calls by its kind, with a number's digits.
func foundValue(value string) string {
	switch value {
	case "string":
		return "found a text"
	case "bool":
		return "found true or false"
	case "array":
		return "found a list"
	case "object":
		return "found an object"
	case "number":
		return "found a number"
	}
	return fmt.Sprintf("found %.48s", strings.TrimPrefix(value, "number "))
}

// wantedValue describes the JSON values of a type.
func wantedValue(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a whole number of nanoseconds"
	case t.Kind() == reflect.Struct:
		return "an object"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Float64:
		return "a number of at most 1.7e308"
	case t.Kind() == reflect.Uint64:
		return "a whole number from 0 to 2^64-1"
	}
	return "a whole number from -2^63 to 2^63-1"
}
