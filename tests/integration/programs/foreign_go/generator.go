//go:build generator

// What makes the code under gen of the IDL: named here, so that its version is fixed in go.mod.
package main

import _ "github.com/cloudwego/thriftgo"
