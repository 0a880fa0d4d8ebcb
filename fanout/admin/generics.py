"""Django's generic base classes for pages and forms. Only the type checker's versions of them take a type argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.auth import admin as auth
from django.core.paginator import Paginator as DjangoPaginator

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    StackedInline = admin.StackedInline[Any, Any]
    TabularInline = admin.TabularInline[Any, Any]
    ModelForm = forms.ModelForm[Any]
    BaseInlineFormSet = forms.BaseInlineFormSet[Any, Any, Any]
    Paginator = DjangoPaginator[Any]
    UserAdmin = auth.UserAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin
    StackedInline = admin.StackedInline
    TabularInline = admin.TabularInline
    ModelForm = forms.ModelForm
    BaseInlineFormSet = forms.BaseInlineFormSet
    Paginator = DjangoPaginator
    UserAdmin = auth.UserAdmin
