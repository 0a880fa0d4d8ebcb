from django.contrib.admin import AdminSite


class CrierAdminSite(AdminSite):
    site_header = "Crier"
    site_title = "Crier"
    index_title = "Overview"
