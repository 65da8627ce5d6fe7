// Serves DTM's HTTP API without its service registries, which would triple the build.
package main

import "github.com/dtm-labs/dtm/dtmsvr/entry"

func main() {
	version := ""
	entry.Main(&version)
	select {}
}
