package tasks_test

import "context"

// background is for properties, which have no context of their own.
var background = context.Background()
