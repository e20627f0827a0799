// Package imageprovider stands for HyperShift's package of this name.
package imageprovider

// ReleaseImageProvider has the images and the version of a release.
type ReleaseImageProvider interface {
	// GetImage returns the image of a component.
	GetImage(key string) string
	// Version returns the version of the release.
	Version() string
}
