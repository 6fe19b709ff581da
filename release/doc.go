// Command release keeps the modules of this tree fit to be released, and releases them. It is a
// module of its own, which nobody requires and which is not released.
//
//	go run . check               what lint wants of the modules, pages and bounds, and the API against ../api
//	go run . api                 writes ../api
//	go run . tidy                go mod tidy in every module, with the siblings of this tree
//	go run . -n tag v0.1.0       what a release would do
//	go run . tag v0.1.0          commits the versions and sets the tags; pushes nothing
//
// The modules have one version. In go.mod each requires its siblings as they were released last;
// go.work makes all work here use the siblings of this tree, so no go.mod has a replace. The sums of
// siblings stand in go.sum from the first release on: tag computes them, module by module in the
// order in which they require each other, from the very commit that it tags.
//
// tree.go reads the modules, rules.go says what holds for them, tidy.go tidies, api.go lists what
// users see, tag.go releases.
package main
