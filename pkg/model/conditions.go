package model

// ConditionDomain is the prefix of the types of hypergate's conditions on the HostedControlPlane. Conditions without it
// belong to other controllers.
const ConditionDomain = "gateway.hypergate.dev/"
