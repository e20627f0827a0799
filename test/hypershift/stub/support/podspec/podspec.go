// Package podspec stands for HyperShift's package of this name.
package podspec

import corev1 "k8s.io/api/core/v1"

// UpdateContainer calls update for each container of a name.
func UpdateContainer(name string, containers []corev1.Container, update func(c *corev1.Container)) {
	for i := range containers {
		if containers[i].Name == name {
			update(&containers[i])
		}
	}
}

// UpsertEnvVar sets the value of a variable. It adds the variable if the container does not have it.
func UpsertEnvVar(c *corev1.Container, variable corev1.EnvVar) {
	for i := range c.Env {
		if c.Env[i].Name == variable.Name {
			c.Env[i].Value = variable.Value
			return
		}
	}
	c.Env = append(c.Env, variable)
}
